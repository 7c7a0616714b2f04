"""The probe's only sockets and timers: virtual time, alarm, pacer, stamps, WebSocket."""
