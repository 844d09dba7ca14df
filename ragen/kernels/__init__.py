"""What torch does in many small operations, compiled for this processor into one each; used for sampling on a CPU."""
