//! Packets and recordings as others see them.
mod any;
mod captures;
mod empty_packets;
