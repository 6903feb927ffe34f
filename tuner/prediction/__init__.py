"""What measurements of a device teach about configs and problems that were not measured."""
