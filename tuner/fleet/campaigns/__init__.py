"""Campaigns: problems × devices with a budget, processed in rounds by any number of workers."""
