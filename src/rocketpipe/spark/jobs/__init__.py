"""Ready-made pipelines: each a function, and a command of `rocketpipe`."""
