//! Conditional instructions that are no branches, and their results (ETMv4, where TRCCONFIGR.COND has them traced).
//!
//! A key matches an instruction with its result. Most packets omit it: the decoder counts it in step with the trace
//! unit. Results are in order, some time after the instructions.

use crate::element::{ConditionalResult, Element};
use crate::etmv4::{Config, Fields, KeyedResult, Kind};

/// Keys of the last conditional instruction and of the last result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    instruction: u32,
    result: u32,
}

/// Limit of instructions that a result can imply if the configuration does not have the number of keys.
const MOST: u32 = 1 << 8;

impl Keys {
    /// Emits the elements of a packet, in order.
    pub fn packet(
        &mut self,
        config: &Config,
        kind: Kind,
        fields: Fields,
        out: &mut impl FnMut(Element),
    ) {
        let keys = config.conditional_keys();
        match (kind, fields) {
            (Kind::ConditionalF1, Fields::Conditional(key)) => {
                self.instruction = keyed(key, self.instruction, keys);
                out(Element::Conditional { key });
            }
            (Kind::ConditionalF2, Fields::Conditional(form)) => {
                let (steps, again) =
                    [(1, false), (0, true), (1, true), (0, false)][form as usize & 3];
                self.instructions(steps, again, keys, out);
            }
            (Kind::ConditionalF3, Fields::Conditional(byte)) => {
                self.instructions(byte >> 1 & 0x3f, byte & 1 == 1, keys, out);
            }
            (Kind::ConditionalFlush, _) => out(Element::ConditionalFlush),
            (_, Fields::Results(results)) => {
                for result in results.into_iter().flatten() {
                    self.keyed_result(result, config, out);
                }
            }
            (Kind::ConditionalResultF2, Fields::Conditional(byte)) => {
                let steps = 1 + (byte >> 2 & 1);
                (0..steps).for_each(|_| self.result = next(self.result, keys));
                self.catch_up(keys, out);
                self.token(byte & 3, config, out);
            }
            (Kind::ConditionalResultF3, Fields::Conditional(tokens)) => {
                let mut left = 12;
                while left > 0 {
                    let at = 12 - left;
                    let short = tokens >> at & 3;
                    // With flags, tokens of four bits begin with two ones.
                    let is_long = config.has_condition_flags() && short == 3 && left >= 4;
                    let (token, bits) = match is_long {
                        true => (tokens >> at & 0xf, 4),
                        false => (short, 2),
                    };
                    if token == if is_long { 0xf } else { 3 } {
                        break;
                    }
                    self.result = next(self.result, keys);
                    self.token(token, config, out);
                    left -= bits;
                }
            }
            (Kind::ConditionalResultF4, Fields::Conditional(byte)) => {
                self.result = match self.result {
                    0 => keys.saturating_sub(1),
                    key => key - 1,
                };
                self.token(byte & 3, config, out);
            }
            _ => {}
        }
    }

    /// Emits `steps` instructions with a new key each, and if `again` another one with the last key.
    fn instructions(&mut self, steps: u32, again: bool, keys: u32, out: &mut impl FnMut(Element)) {
        for _ in 0..steps {
            self.instruction = next(self.instruction, keys);
            out(Element::Conditional {
                key: self.instruction,
            });
        }
        if again {
            out(Element::Conditional {
                key: self.instruction,
            });
        }
    }

    /// Emits the instructions without packets up to the one of the next result.
    fn catch_up(&mut self, keys: u32, out: &mut impl FnMut(Element)) {
        let most = if keys > 0 { keys.min(MOST) } else { MOST };
        for _ in 0..most {
            if self.instruction == self.result {
                return;
            }
            self.instructions(1, false, keys, out);
        }
    }

    fn keyed_result(
        &mut self,
        result: KeyedResult,
        config: &Config,
        out: &mut impl FnMut(Element),
    ) {
        let keys = config.conditional_keys();
        self.result = keyed(result.key, self.result, keys);
        if result.implies_instructions {
            self.catch_up(keys, out);
        }
        let value = match config.has_condition_flags() {
            true => ConditionalResult::Flags(result.result),
            false if result.result & 1 == 1 => ConditionalResult::Passed,
            false => ConditionalResult::Failed,
        };
        out(Element::ConditionalResult {
            key: result.key,
            result: value,
        });
    }

    /// Emits a result encoded as a token.
    fn token(&mut self, token: u32, config: &Config, out: &mut impl FnMut(Element)) {
        let result = match (config.has_condition_flags(), token) {
            (false, 0) => ConditionalResult::Failed,
            (false, 1) => ConditionalResult::Passed,
            (true, 0) => ConditionalResult::Flags(0b0010),
            (true, 1) => ConditionalResult::Flags(0b1000),
            (true, 2) => ConditionalResult::Flags(0b0110),
            (true, 3) => ConditionalResult::Flags(0b1010),
            (true, 7) => ConditionalResult::Flags(0),
            (true, 11) => ConditionalResult::Flags(0b0100),
            _ => ConditionalResult::Unknown,
        };
        out(Element::ConditionalResult {
            key: self.result,
            result,
        });
    }
}

/// Next key modulo the number of keys; without a modulus if the configuration does not have the number.
fn next(key: u32, keys: u32) -> u32 {
    match key.wrapping_add(1) {
        key if keys > 0 => key % keys,
        key => key,
    }
}

/// Key from which to count after a packet with a key. A special key (beyond the regular ones) advances the count by
/// one.
fn keyed(key: u32, last: u32, keys: u32) -> u32 {
    match keys > 0 && key >= keys {
        true => next(last, keys),
        false => key,
    }
}
