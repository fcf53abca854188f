"""Rolling restarts of gateways under load, of which no client may notice anything."""
