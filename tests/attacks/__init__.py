"""What a hostile caller tries, and what the others see of it: nothing."""
