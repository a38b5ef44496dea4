//! `--hdr FILE`: an interval log in the format of HdrHistogram (version 1.3), which its own and other tools
//! plot and merge.
//!
//! Each interval, warm-up included, has a line of latencies from the intended time, and a line with the tag
//! `lateness` of the generator's own delay. Values are nanoseconds with two significant digits. The format
//! has no infinity, so a request without a correct reply has the longest value, 600 s. Percentiles of the log
//! are thus those of all requests.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::load::{LONGEST, Snapshot};
use base::{Nanos, WallTime};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::exit::Exit;

/// The tag of the second kind of lines.
const LATENESS: &str = "lateness";

/// A log that is being written.
pub struct HdrLog<W: Write = BufWriter<File>> {
    path: PathBuf,
    out: W,
    serializer: V2DeflateSerializer,
    failure: Option<io::Error>,
}

impl HdrLog {
    /// Begins a file, in place of an existing one.
    pub fn create(path: &Path, now: WallTime) -> Result<HdrLog, Exit> {
        let refused = |cause| Exit::Usage(format!("--hdr {}: cannot write it: {cause}", path.display()));
        let file = BufWriter::new(File::create(path).map_err(refused)?);
        HdrLog::begin(path.to_owned(), file, now).map_err(refused)
    }
}

impl<W: Write> HdrLog<W> {
    fn begin(path: PathBuf, mut out: W, now: WallTime) -> io::Result<HdrLog<W>> {
        let start = now.system_time();
        let mut serializer = V2DeflateSerializer::new();
        out.write_all(b"#[Histogram log format version 1.3]\n")?;
        IntervalLogWriterBuilder::new()
            .add_comment("Latencies from the intended time and, tagged, lateness; nanoseconds.")
            .add_comment("600 s stands for a request without a correct reply.")
            .with_start_time(start)
            .with_base_time(start)
            .begin_log_with(&mut out, &mut serializer)?;
        out.write_all(
            b"\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        )?;
        Ok(HdrLog { path, out, serializer, failure: None })
    }

    /// Adds an interval. A write error is reported at the end, so that the run goes on.
    pub fn interval(&mut self, snapshot: &Snapshot<'_>) {
        if self.failure.is_none() {
            self.failure = self.lines(snapshot).err();
        }
    }

    fn lines(&mut self, snapshot: &Snapshot<'_>) -> io::Result<()> {
        let length = Nanos::from_secs_f64(snapshot.point.interval_s);
        let (from, length) =
            (Duration::from(snapshot.elapsed.saturating_sub(length)), Duration::from(length));
        let mut log = IntervalLogWriterBuilder::new().begin_log_with(&mut self.out, &mut self.serializer)?;
        let mut latency = snapshot.latency_intended.clone();
        // A count cannot hold more than four billion requests of an interval.
        let unanswered = u32::try_from(snapshot.point.latency_intended_ns.unanswered).unwrap_or(u32::MAX);
        latency.saturating_record_n(LONGEST.0, unanswered);
        let kinds = [(&latency, None), (snapshot.lateness, Tag::new(LATENESS))];
        kinds
            .into_iter()
            .try_for_each(|(histogram, tag)| log.write_histogram(histogram, from, length, tag))
            .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The first write error.
    pub fn end(mut self) -> Result<(), Exit> {
        let flushed = self.failure.map_or_else(|| self.out.flush(), Err);
        flushed
            .map_err(|cause| Exit::Failed(format!("--hdr {}: cannot write it: {cause}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use record::{Latency, Outcomes, Point};

    fn histogram(values: &[u64]) -> Histogram<u32> {
        let mut histogram = Histogram::new_with_bounds(1_000, 600_000_000_000, 2).unwrap();
        values.iter().for_each(|value| histogram.record(*value).unwrap());
        histogram
    }

    fn snapshot<R>(latency: &[u64], lateness: &[u64], then: impl FnOnce(&Snapshot<'_>) -> R) -> R {
        let unanswered = Latency { unanswered: 3, ..Latency::default() };
        let point = Point { interval_s: 1.0, latency_intended_ns: unanswered, ..Point::default() };
        then(&Snapshot {
            elapsed: Nanos::from_secs(3),
            total: Nanos::from_secs(10),
            warming_up: false,
            point: &point,
            latency_intended: &histogram(latency),
            lateness: &histogram(lateness),
            outcomes: &Outcomes::default(),
            established: 0,
            populations: &[],
        })
    }

    #[test]
    fn hdr_log_reads_back_by_its_own_reader() {
        let mut log = HdrLog::begin("x".into(), Vec::new(), WallTime { seconds: 1_000 }).unwrap();
        snapshot(&[1_000_000, 3_000_000], &[50_000], |snapshot| log.interval(snapshot));
        assert!(log.failure.is_none());
        let intervals: Vec<_> = IntervalLogIterator::new(&log.out)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(intervals.len(), 2);
        assert_eq!(intervals[0].start_timestamp(), Duration::from_secs(2));
        assert_eq!(intervals[0].duration(), Duration::from_secs(1));
        assert_eq!(intervals[1].tag().map(|tag| tag.as_str().to_owned()), Some(LATENESS.to_owned()));
        let read = |text: &str| -> Histogram<u64> {
            use base64::Engine;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
            Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
        };
        let latency = read(intervals[0].encoded_histogram());
        assert_eq!(
            (latency.len(), latency.count_between(599_000_000_000, u64::MAX)),
            (5, 3),
            "the unanswered too"
        );
        assert_eq!(read(intervals[1].encoded_histogram()).len(), 1);
    }

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut log = HdrLog::begin(
            "/dev/full".into(),
            BufWriter::with_capacity(1 << 16, full),
            WallTime { seconds: 0 },
        )
        .unwrap();
        snapshot(&[1], &[1], |snapshot| log.interval(snapshot));
        let error = format!("{:?}", log.end().unwrap_err());
        assert!(error.contains("--hdr /dev/full: cannot write it: No space left"), "{error}");
    }
}
