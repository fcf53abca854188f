"""What all processes saw of the offers, rolled up for those who plan, read and replay."""
