"""The plan: a pure function of config, inventory and model facts, made before anything runs."""
