"""What a process knows of its offers: who rests, who may be tried again, and how fast each is."""
