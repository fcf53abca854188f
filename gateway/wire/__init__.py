"""What both sides of the gateway speak: JSON, event streams, header fields, and the words for what goes wrong."""
