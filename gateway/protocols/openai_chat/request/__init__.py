"""What a client of the chat protocol asks for, checked; and the body an upstream gets."""
