//! What Redis answers, in its second protocol.

use std::io::{self, BufRead, ErrorKind};

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A short text, such as `OK`.
    Simple(String),
    /// A refusal: its code, then its text.
    Error(String),
    /// A number.
    Int(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Several.
    Array(Vec<Reply>),
    /// Nothing there.
    Nil,
}

impl Reply {
    /// The text of a simple or bulk reply.
    ///
    /// # Panics
    /// On any other reply.
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("expected a text, Redis answered {other:?}"),
        }
    }

    /// The number, also of a text that is one.
    ///
    /// # Panics
    /// On any other reply.
    #[track_caller]
    pub fn int(&self) -> i64 {
        let number = match self {
            Self::Int(number) => Some(*number),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        number.unwrap_or_else(|| panic!("expected a number, Redis answered {self:?}"))
    }

    /// The bytes of a bulk reply.
    ///
    /// # Panics
    /// On any other reply.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("expected bytes, Redis answered {other:?}"),
        }
    }

    /// The items of an array.
    ///
    /// # Panics
    /// On any other reply.
    #[track_caller]
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            other => panic!("expected an array, Redis answered {other:?}"),
        }
    }

    /// The refusal, if it is one.
    pub fn error(&self) -> Option<&str> {
        if let Self::Error(text) = self { Some(text) } else { None }
    }

    /// Nothing was there.
    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }

    /// The same reply, where it is not a refusal.
    ///
    /// # Panics
    /// On a refusal.
    #[track_caller]
    pub fn accepted(self) -> Self {
        assert!(self.error().is_none(), "Redis refused: {self:?}");
        self
    }

    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, format!("the reply ends in {line:?}")));
        };
        let strange = || io::Error::new(ErrorKind::InvalidData, format!("{line:?} begins no reply"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(strange)?;
        let number = || rest.parse::<i64>().map_err(|_| strange());
        match kind {
            "+" => Ok(Self::Simple(rest.to_owned())),
            "-" => Ok(Self::Error(rest.to_owned())),
            ":" => number().map(Self::Int),
            "$" => {
                let Ok(length) = usize::try_from(number()?) else { return Ok(Self::Nil) };
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Self::Bulk(bytes))
            }
            "*" => {
                let Ok(length) = usize::try_from(number()?) else { return Ok(Self::Nil) };
                (0..length).map(|_| Self::read(from)).collect::<io::Result<_>>().map(Self::Array)
            }
            _ => Err(strange()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<Reply> {
        Reply::read(&mut text.as_bytes())
    }

    #[test]
    fn every_kind_is_understood() {
        let nested = read("*5\r\n+OK\r\n-ERR no\r\n:-7\r\n$2\r\n\r\n\r\n*1\r\n$-1\r\n").unwrap();
        let expected = [
            Reply::Simple("OK".to_owned()),
            Reply::Error("ERR no".to_owned()),
            Reply::Int(-7),
            Reply::Bulk(b"\r\n".to_vec()),
            Reply::Array(vec![Reply::Nil]),
        ];
        assert_eq!(nested.items(), expected);
    }

    #[test]
    fn a_reply_cut_short_is_an_error() {
        for text in ["", "+O", "+OK\r", "$5\r\nab", "*2\r\n+OK\r\n"] {
            assert_eq!(read(text).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{text:?}");
        }
        assert_eq!(read("HTTP/1.1 400\r\n").unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
