"""What a gateway process keeps to hold and settle durably, whatever dies."""
