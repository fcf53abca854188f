"""The console's frame, and its pages that mix the apps."""
