//! Packets and recordings as others see them.
mod any;
mod captures;
