"""``make calibrate``: the few free numbers, fitted to measured runs and measured collectives."""
