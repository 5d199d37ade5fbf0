//! What a failed file operation means. Each error number has one rule, and this is the one table of them.

use std::io;
use std::time::Duration;

/// The rule for an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is not there: a plain miss.
    Absent,
    /// It may be gone at the next try, as on a network file system: try again with a fresh open, then do without.
    Passing,
    /// Somebody was faster: adopt what they left, if it verifies.
    Taken,
    /// No room: keep the result in memory, and say how much was needed where.
    NoRoom,
    /// Not to be written: keep the result in memory.
    ReadOnly,
    /// Source and destination lie on different file systems.
    OtherFileSystem,
    /// The file system has no such operation, as with locks.
    Unsupported,
    /// Not allowed, or anything else: do without, and say why.
    Refused,
}

impl Fault {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT) => Self::Absent,
            Some(libc::ESTALE | libc::EBUSY | libc::EIO | libc::EINTR | libc::EAGAIN) => Self::Passing,
            Some(libc::EEXIST | libc::ENOTEMPTY) => Self::Taken,
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::NoRoom,
            Some(libc::EROFS) => Self::ReadOnly,
            Some(libc::EXDEV) => Self::OtherFileSystem,
            Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP) => Self::Unsupported,
            _ => Self::Refused,
        }
    }
}

/// Pauses between the tries of an operation that failed in passing.
pub(crate) const PAUSES: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(50)];

/// Does something again while it fails in passing, five times at most.
pub(crate) fn retried<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for pause in PAUSES {
        match attempt() {
            Err(error) if Fault::of(&error) == Fault::Passing => std::thread::sleep(pause),
            done => return done,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_rule() {
        for (number, rule) in [
            (libc::ENOENT, Fault::Absent),
            (libc::ESTALE, Fault::Passing),
            (libc::EBUSY, Fault::Passing),
            (libc::EIO, Fault::Passing),
            (libc::EINTR, Fault::Passing),
            (libc::EAGAIN, Fault::Passing),
            (libc::EEXIST, Fault::Taken),
            (libc::ENOTEMPTY, Fault::Taken),
            (libc::ENOSPC, Fault::NoRoom),
            (libc::EDQUOT, Fault::NoRoom),
            (libc::EROFS, Fault::ReadOnly),
            (libc::EXDEV, Fault::OtherFileSystem),
            (libc::ENOLCK, Fault::Unsupported),
            (libc::ENOSYS, Fault::Unsupported),
            (libc::EOPNOTSUPP, Fault::Unsupported),
            (libc::EACCES, Fault::Refused),
            (libc::ENOTDIR, Fault::Refused),
        ] {
            assert_eq!(Fault::of(&io::Error::from_raw_os_error(number)), rule, "{number}");
        }
        assert_eq!(Fault::of(&io::Error::other("ours")), Fault::Refused);
    }

    #[test]
    fn only_what_passes_is_tried_again_and_not_for_ever() {
        let tries = |number| {
            let mut tries = 0;
            let failed: io::Result<()> = retried(|| {
                tries += 1;
                Err(io::Error::from_raw_os_error(number))
            });
            assert!(failed.is_err());
            tries
        };
        assert_eq!([libc::ESTALE, libc::ENOENT, libc::EACCES].map(tries), [5, 1, 1]);
    }
}
