"""From settings to a finished run folder: the protocol, training, devices, costs."""
