"""Where we reach into Keras and KerasHub for want of a public way, by quirk."""
