"""Campaigns: problems × devices with a budget, worked off in rounds by any number of workers."""
