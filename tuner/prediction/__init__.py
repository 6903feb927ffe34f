"""Prediction: learns from a device's measurements about unmeasured configs and problems."""
