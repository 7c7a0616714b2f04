"""What is heard in audio: decoding, activity, playout, and a second witness."""
