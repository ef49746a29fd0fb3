//! Protobuf messages as trees without a schema, and mutants of them. The framing stays valid, so that mutations reach
//! the code after the decoder.

use crate::raw::{mutate as mutate_bytes, number_near, one_in, one_of};
use crate::target::Random;
use rand::RngExt;

/// A message: its fields in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message(pub Vec<Field>);

/// One field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its number.
    pub number: u32,
    /// Its value.
    pub value: Value,
}

/// What a field holds, as far as the wire tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A variable-length integer.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// Text, data, packed numbers.
    Bytes(Vec<u8>),
    /// Bytes that read as a message.
    Message(Message),
}

/// Deepest nesting that is opened up.
const MAX_DEPTH: usize = 12;

impl Message {
    /// Reads bytes that are a message as a whole.
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        parse(bytes, 0)
    }
    /// The bytes of the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for f in &self.0 {
            let (wire, body) = match &f.value {
                Value::Varint(v) => (0, varint(*v)),
                Value::Fixed64(b) => (1, b.to_vec()),
                Value::Fixed32(b) => (5, b.to_vec()),
                Value::Bytes(b) => (2, delimited(b)),
                Value::Message(m) => (2, delimited(&m.to_bytes())),
            };
            out.extend(varint(u64::from(f.number) << 3 | wire));
            out.extend(body);
        }
        out
    }
    fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a Field)) {
        for field in &self.0 {
            f(field);
            if let Value::Message(m) = &field.value {
                m.visit(f);
            }
        }
    }
    /// The message with a number, counted from this one down.
    fn at(&mut self, number: &mut usize) -> Option<&mut Message> {
        if *number == 0 {
            return Some(self);
        }
        *number -= 1;
        self.0.iter_mut().find_map(|f| if let Value::Message(m) = &mut f.value { m.at(number) } else { None })
    }
    fn messages(&self) -> usize {
        let mut n = 1;
        self.visit(&mut |f| n += usize::from(matches!(f.value, Value::Message(_))));
        n
    }
    /// Every text in the message.
    pub fn texts(&self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.visit(&mut |f| {
            if let Value::Bytes(b) = &f.value
                && is_text(b)
            {
                out.push(b.clone());
            }
        });
        out
    }
}

fn parse(mut bytes: &[u8], depth: usize) -> Option<Message> {
    let mut out = Message::default();
    while !bytes.is_empty() {
        let key = read_varint(&mut bytes)?;
        let number = u32::try_from(key >> 3).ok().filter(|n| (1..1000).contains(n))?;
        let value = match key & 7 {
            0 => Value::Varint(read_varint(&mut bytes)?),
            1 => Value::Fixed64(*take(&mut bytes, 8)?.first_chunk()?),
            5 => Value::Fixed32(*take(&mut bytes, 4)?.first_chunk()?),
            2 => {
                let length = usize::try_from(read_varint(&mut bytes)?).ok()?;
                let inner = take(&mut bytes, length)?;
                let message =
                    (depth < MAX_DEPTH && !inner.is_empty() && !is_text(inner)).then(|| parse(inner, depth + 1));
                message.flatten().map_or_else(|| Value::Bytes(inner.to_vec()), Value::Message)
            }
            _ => return None,
        };
        out.0.push(Field { number, value });
    }
    Some(out)
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(head)
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn varint(mut v: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
    out
}

fn delimited(bytes: &[u8]) -> Vec<u8> {
    let mut out = varint(bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

fn is_text(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|b| b.is_ascii_graphic() || *b == b' ')
}

/// A few changes anywhere in the tree. `words` are texts that the format knows; `other` lends fields.
pub fn mutate(random: &mut Random, m: &mut Message, words: &[&str], other: &Message) {
    for _ in 0..random.random_range(1..5) {
        let texts = m.texts();
        let mut number = random.random_range(0..m.messages());
        let Some(place) = m.at(&mut number) else { return };
        match random.random_range(0..10) {
            0 if !place.0.is_empty() => drop(place.0.remove(random.random_range(0..place.0.len()))),
            1 if !place.0.is_empty() => {
                let copy = one_of(random, &place.0).clone();
                place.0.insert(random.random_range(0..=place.0.len()), copy);
            }
            2 if place.0.len() > 1 => {
                let (a, b) = (random.random_range(0..place.0.len()), random.random_range(0..place.0.len()));
                place.0.swap(a, b);
            }
            3 => lend(random, place, other),
            4 => {
                let number = random.random_range(1..24);
                place.0.push(Field { number, value: Value::Varint(number_near(random, 0) as u64) });
            }
            _ if !place.0.is_empty() => {
                let i = random.random_range(0..place.0.len());
                change(random, &mut place.0[i], words, &texts);
            }
            _ => {}
        }
    }
}

/// A field of another message, in the place of one with its number where there is one.
fn lend(random: &mut Random, place: &mut Message, other: &Message) {
    let mut fields = Vec::new();
    other.visit(&mut |f| fields.push(f));
    if fields.is_empty() {
        return;
    }
    let numbers: Vec<u32> = place.0.iter().map(|f| f.number).collect();
    let fitting: Vec<&&Field> = fields.iter().filter(|f| numbers.contains(&f.number)).collect();
    let new =
        if fitting.is_empty() { (*one_of(random, &fields)).clone() } else { (**one_of(random, &fitting)).clone() };
    match place.0.iter_mut().find(|f| f.number == new.number) {
        Some(old) if !one_in(random, 3) => *old = new,
        _ => place.0.insert(random.random_range(0..=place.0.len()), new),
    }
}

fn change(random: &mut Random, field: &mut Field, words: &[&str], texts: &[Vec<u8>]) {
    if one_in(random, 30) {
        field.number = random.random_range(1..24);
    }
    match &mut field.value {
        Value::Varint(v) => *v = number_near(random, *v as i64) as u64,
        Value::Fixed64(b) => *b = number_near(random, i64::from_le_bytes(*b)).to_le_bytes(),
        Value::Fixed32(b) => *b = change_four(random, *b),
        Value::Bytes(b) if is_text(b) => match random.random_range(0..8) {
            0 => b.clear(),
            1 => *b = mutate_bytes(random, b.clone(), &[]),
            2..=4 if !words.is_empty() => *b = one_of(random, words).as_bytes().to_vec(),
            _ if !texts.is_empty() => *b = one_of(random, texts).clone(),
            _ => {}
        },
        Value::Bytes(b) if b.len().is_multiple_of(8) && !b.is_empty() && one_in(random, 2) => {
            let at = random.random_range(0..b.len() / 8) * 8;
            let old = i64::from_le_bytes(b[at..at + 8].try_into().unwrap_or_default());
            b[at..at + 8].copy_from_slice(&number_near(random, old).to_le_bytes());
        }
        Value::Bytes(b) => match random.random_range(0..3) {
            0 => {
                let end = random.random_range(0..=b.len());
                b.extend(varint(number_near(random, 0) as u64));
                b.truncate(end.max(1));
            }
            _ => *b = mutate_bytes(random, std::mem::take(b), &[]),
        },
        Value::Message(m) => m.0.truncate(random.random_range(0..=m.0.len())),
    }
}

fn change_four(random: &mut Random, b: [u8; 4]) -> [u8; 4] {
    const FLOATS: [f32; 9] = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-45];
    match random.random_range(0..2) {
        0 => one_of(random, &FLOATS).to_le_bytes(),
        _ => (number_near(random, i64::from(i32::from_le_bytes(b))) as i32).to_le_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_written_back() {
        let inner = Message(vec![
            Field { number: 4, value: Value::Bytes(b"Conv".to_vec()) },
            Field { number: 2, value: Value::Varint(300) },
        ]);
        let whole = Message(vec![
            Field { number: 7, value: Value::Message(inner) },
            Field { number: 9, value: Value::Fixed32([1, 2, 3, 4]) },
            Field { number: 3, value: Value::Bytes(vec![0xff, 0x80, 0x01]) },
        ]);
        let bytes = whole.to_bytes();
        assert_eq!(Message::parse(&bytes), Some(whole.clone()));
        assert_eq!(whole.texts(), [b"Conv".to_vec()]);
        assert_eq!(Message::parse(&bytes[..bytes.len() - 1]), None);
    }
}
