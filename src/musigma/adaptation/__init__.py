"""From pictures of one's own to weights with error bars of one's own: split, train, calibrate."""
