//! Integration tests with dumps from devices and with synthetic ones.

mod any;
mod captures;
