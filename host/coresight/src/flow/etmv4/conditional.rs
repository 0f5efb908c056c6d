//! Conditional instructions that are no branches, and their results (ETMv4, where TRCCONFIGR.COND has them traced).
//!
//! Instructions and results are matched by a key. Most packets leave it out: the decoder counts it, in step with the trace
//! unit. Results come in order, some time behind the instructions.

use crate::element::{ConditionalResult, Element};
use crate::etmv4::{Config, Fields, KeyedResult, Kind};

/// The keys of the last conditional instruction and of the last result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    instruction: u32,
    result: u32,
}

/// Instructions that a result may imply, where the configuration does not say how many keys there are.
const MOST: u32 = 1 << 8;

impl Keys {
    /// The elements of a packet, in order.
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
                    // Of flags, tokens of four bits begin with two ones.
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

    /// This many instructions with a key each, and perhaps another one with the last key.
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

    /// The instructions up to the one whose result comes, of which no packet was.
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

    /// A result as one of the tokens for frequent ones.
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

/// The next key, of so many; of as many as there are numbers where the configuration does not say.
fn next(key: u32, keys: u32) -> u32 {
    match key.wrapping_add(1) {
        key if keys > 0 => key % keys,
        key => key,
    }
}

/// The key to count from behind a packet that has one. Special keys are of instructions that are not counted by theirs.
fn keyed(key: u32, last: u32, keys: u32) -> u32 {
    match keys > 0 && key >= keys {
        true => next(last, keys),
        false => key,
    }
}
