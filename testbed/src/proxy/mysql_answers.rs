//! Where the answer to a MySQL command ends.

const OK: u8 = 0x00;
const INFILE: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

const MORE_RESULTS: u16 = 0x0008;
const CURSOR_EXISTS: u16 = 0x0040;

/// The longest packet that marks the end of rows where nothing else does.
const EOF_LENGTH: usize = 9;
/// The longest that does so as an OK packet does; a longer one is a row.
const MAX_END_PACKET_BYTES: usize = 0xff_ffff;

/// What an answer is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One packet.
    One,
    /// Any number of results: each a status, or columns and rows.
    Results,
    /// A prepared statement and the definitions of its parameters and columns.
    Statement,
    /// Packets up to one that says that it is the last.
    UpToEnd,
    /// Packets up to a status.
    Login,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    First,
    /// That number of packets, then the rows.
    Columns(u64),
    Rows,
    /// That number of packets, then nothing.
    Definitions(u64),
}

/// Reads one answer, packet by packet.
pub(super) struct Reader {
    shape: Shape,
    /// Whether rows end with a status, and definitions with nothing.
    has_no_eof: bool,
    stage: Stage,
    prepared: Option<u32>,
}

impl Reader {
    pub(super) fn new(shape: Shape, has_no_eof: bool) -> Self {
        Self { shape, has_no_eof, stage: Stage::First, prepared: None }
    }

    /// The number of the statement that was prepared.
    pub(super) fn prepared(&self) -> Option<u32> {
        self.prepared
    }

    /// Whether this packet is the last.
    pub(super) fn read(&mut self, payload: &[u8]) -> bool {
        let first = payload.first().copied().unwrap_or_default();
        if first == ERROR && !matches!(self.stage, Stage::Definitions(_)) {
            return true;
        }
        match self.shape {
            Shape::One => true,
            Shape::Results => self.read_result(first, payload),
            Shape::Statement => self.read_statement(payload),
            Shape::UpToEnd => first == END && payload.len() < EOF_LENGTH,
            Shape::Login => first == OK,
        }
    }

    fn read_result(&mut self, first: u8, payload: &[u8]) -> bool {
        match self.stage {
            Stage::First if first == OK => status(payload) & MORE_RESULTS == 0,
            // The client sends the file, and then comes the status.
            Stage::First if first == INFILE => false,
            Stage::First => {
                let columns = lenenc(payload).map_or(0, |(count, _)| count);
                self.stage = Stage::Columns(columns + u64::from(!self.has_no_eof));
                false
            }
            Stage::Columns(2..) => {
                self.step();
                false
            }
            Stage::Columns(_) => {
                self.stage = Stage::Rows;
                !self.has_no_eof && eof_status(payload) & CURSOR_EXISTS != 0
            }
            Stage::Rows if self.is_end(first, payload) => {
                self.stage = Stage::First;
                let status = if self.has_no_eof { status(payload) } else { eof_status(payload) };
                status & MORE_RESULTS == 0
            }
            Stage::Rows | Stage::Definitions(_) => false,
        }
    }

    fn read_statement(&mut self, payload: &[u8]) -> bool {
        match (self.stage, payload) {
            (Stage::First, [OK, a, b, c, d, columns1, columns2, params1, params2, ..]) => {
                self.prepared = Some(u32::from_le_bytes([*a, *b, *c, *d]));
                let packets = |count: u16| match count {
                    0 => 0,
                    count => u64::from(count) + u64::from(!self.has_no_eof),
                };
                let columns = u16::from_le_bytes([*columns1, *columns2]);
                let params = u16::from_le_bytes([*params1, *params2]);
                self.stage = Stage::Definitions(packets(columns) + packets(params));
            }
            _ => self.step(),
        }
        matches!(self.stage, Stage::Definitions(0))
    }

    fn step(&mut self) {
        if let Stage::Columns(left) | Stage::Definitions(left) = &mut self.stage {
            *left = left.saturating_sub(1);
        }
    }

    fn is_end(&self, first: u8, payload: &[u8]) -> bool {
        first == END
            && payload.len() < if self.has_no_eof { MAX_END_PACKET_BYTES } else { EOF_LENGTH }
    }
}

/// A number of the length in its first byte, and what is behind it.
fn lenenc(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = payload.split_first()?;
    let length = match first {
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return Some((u64::from(*first), rest)),
    };
    let (digits, rest) = rest.split_at_checked(length)?;
    let number = digits.iter().rev().fold(0, |number, digit| number << 8 | u64::from(*digit));
    Some((number, rest))
}

/// The status flags of a packet that is made like OK: behind two numbers.
fn status(payload: &[u8]) -> u16 {
    let behind = payload.get(1..).and_then(lenenc).and_then(|(_rows, rest)| lenenc(rest));
    match behind {
        Some((_id, [a, b, ..])) => u16::from_le_bytes([*a, *b]),
        _ => 0,
    }
}

/// The status flags of an EOF packet: behind the warnings.
fn eof_status(payload: &[u8]) -> u16 {
    match payload {
        [_, _, _, a, b, ..] => u16::from_le_bytes([*a, *b]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Reader, Shape};

    const OK: &[u8] = &[0, 1, 0, 2, 0, 0, 0];
    const OK_AND_MORE: &[u8] = &[0, 0xfc, 1, 1, 0, 8, 0, 0, 0];
    const ERROR: &[u8] = &[0xff, 1, 2];
    const TWO_COLUMNS: &[u8] = &[2];
    const COLUMN: &[u8] = b"\x03def";
    const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
    const EOF_AND_MORE: &[u8] = &[0xfe, 0, 0, 8, 0];
    const EOF_AND_CURSOR: &[u8] = &[0xfe, 0, 0, 0x40, 0];
    /// A packet that ends a list, encoded as a status with a number of rows and an id.
    const END: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
    const END_AND_MORE: &[u8] = &[0xfe, 0, 0, 8, 0, 0, 0];
    const ROW: &[u8] = b"\x011\x012";
    /// Of a prepared statement, with many nulls.
    const BINARY_ROW: &[u8] = &[0, 0xff, 8, 8, 8, 8, 8, 8];
    const FILE: &[u8] = b"\xfbname";

    fn ends_with_the_last(shape: Shape, has_no_eof: bool, packets: &[&[u8]]) {
        let mut reader = Reader::new(shape, has_no_eof);
        for (number, packet) in (1..).zip(packets) {
            let is_last = number == packets.len();
            assert_eq!(reader.read(packet), is_last, "{shape:?}, packet {number} of {packets:?}");
        }
    }

    #[test]
    fn an_answer_ends_with_its_last_packet_and_not_before() {
        for eof in [true, false] {
            for packet in [OK, ERROR, EOF] {
                ends_with_the_last(Shape::One, eof, &[packet]);
            }
            for packets in [&[OK][..], &[ERROR], &[OK_AND_MORE, OK], &[FILE, OK], &[FILE, ERROR]] {
                ends_with_the_last(Shape::Results, eof, packets);
            }
            ends_with_the_last(Shape::UpToEnd, eof, &[ROW, BINARY_ROW, EOF]);
            ends_with_the_last(Shape::UpToEnd, eof, &[ERROR]);
            ends_with_the_last(Shape::Login, eof, &[&[0xfe, b'x'], &[1, 3], OK]);
            ends_with_the_last(Shape::Login, eof, &[&[0xfe, b'x'], ERROR]);
            ends_with_the_last(Shape::Statement, eof, &[ERROR]);
        }
        let head = [TWO_COLUMNS, COLUMN, COLUMN];
        for rows in [&[][..], &[ROW, ROW], &[BINARY_ROW]] {
            let (old, new) = ([&head, &[EOF][..], rows].concat(), [&head, rows].concat());
            let and_more = [&old[..], &[EOF_AND_MORE, OK_AND_MORE], &old, &[EOF]].concat();
            ends_with_the_last(Shape::Results, false, &and_more);
            ends_with_the_last(Shape::Results, false, &[&old[..], &[ERROR]].concat());
            let and_more = [&new[..], &[END_AND_MORE, OK_AND_MORE], &new, &[END]].concat();
            ends_with_the_last(Shape::Results, true, &and_more);
            ends_with_the_last(Shape::Results, true, &[&new[..], &[ERROR]].concat());
        }
        ends_with_the_last(Shape::Results, false, &[&head[..], &[EOF_AND_CURSOR]].concat());
    }

    #[test]
    fn the_answer_to_preparing_ends_with_the_last_definition() {
        for (columns, params, old, new) in [(0, 0, 0, 0), (1, 0, 2, 1), (0, 2, 3, 2), (3, 2, 7, 5)]
        {
            let first = [0, 9, 1, 0, 0, columns, 0, params, 0, 0, 0, 0];
            for (has_no_eof, definitions) in [(false, old), (true, new)] {
                let mut packets = vec![&first[..]];
                packets.extend(vec![COLUMN; definitions]);
                ends_with_the_last(Shape::Statement, has_no_eof, &packets);
            }
            let mut reader = Reader::new(Shape::Statement, false);
            reader.read(&first);
            assert_eq!(reader.prepared(), Some(265));
        }
    }
}
