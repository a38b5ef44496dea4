//! What a site has done, for whoever publishes it.

/// Counters since the site was made. Each limit and each refusal has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Answered from the cache, without a system call.
    pub hits: u64,
    /// Names looked up that were not cached.
    pub misses: u64,
    /// Cached files that were looked at again and found unchanged.
    pub revalidations: u64,
    /// Cached files that were found changed.
    pub changed: u64,
    /// Cached files served unexamined because no descriptor was left to examine them.
    pub revalidations_skipped: u64,
    /// Files dropped from the cache for the limit on entries.
    pub evicted_for_entries: u64,
    /// Files dropped from the cache for the limit on open files.
    pub evicted_for_open_files: u64,
    /// Files dropped from the cache for the limit on bytes.
    pub evicted_for_bytes: u64,
    /// Remembered refusals dropped for their limit.
    pub evicted_absent: u64,
    /// Small files that kept changing while they were read, and are sent from the open file instead.
    pub unstable_reads: u64,
    /// Precompressed siblings older than their original, hence not offered.
    pub outdated_siblings: u64,
    /// 400: paths that are malformed or climb above the root.
    pub bad_paths: u64,
    /// 404 for a dot-file.
    pub hidden: u64,
    /// 404 for a name that does not exist or is no regular file.
    pub not_found: u64,
    /// 404 for a link that leads out of the root.
    pub refused_escapes: u64,
    /// 403
    pub forbidden: u64,
    /// 503 because the root was missing.
    pub root_missing: u64,
    /// Times the root was found to be another directory than before, or back again.
    pub root_replaced: u64,
    /// 503 because descriptors or memory ran out (EMFILE, ENFILE, ENOMEM).
    pub descriptors_exhausted: u64,
    /// 500 for any other failure of the file system.
    pub open_errors: u64,
    /// `Range` fields ignored for asking for too many ranges.
    pub ranges_refused: u64,
}
