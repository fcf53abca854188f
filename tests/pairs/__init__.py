"""Every client's protocol over every provider's."""
