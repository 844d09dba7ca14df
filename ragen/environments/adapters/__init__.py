"""Environments of other makers as RAGEN's own: any Gymnasium class or id, MiniGrid and BabyAI, and OpenEnv over the network.

See docs/environments/gymnasium.md, minigrid.md and openenv.md. The packages behind the last two are optional extras.
"""
