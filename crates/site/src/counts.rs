//! What a site has done, for whoever publishes it.

base::counts! {
    /// Counters since the site was made. Each limit and each refusal has one.
    pub struct Counts {
        /// Answered from the cache, without a system call.
        hits,
        /// Names looked up that were not cached.
        misses,
        /// Times that an answer was asked of memory alone, which did not have it.
        cold,
        /// Cached files that were looked at again and found unchanged.
        revalidations,
        /// Cached files that were found changed.
        changed,
        /// Cached files served unexamined because no descriptor was left to examine them.
        revalidations_skipped,
        /// Files dropped from the cache for the limit on entries.
        evicted_for_entries,
        /// Files dropped from the cache for the limit on open files.
        evicted_for_open_files,
        /// Files dropped from the cache for the limit on bytes.
        evicted_for_bytes,
        /// Files dropped from the cache because nobody asked for them lately.
        dropped_idle,
        /// Remembered refusals dropped for their limit.
        evicted_absent,
        /// Small files that kept changing while they were read, and are sent from the open file instead.
        unstable_reads,
        /// Precompressed siblings older than their original, hence not offered.
        outdated_siblings,
        /// 400: paths that are malformed or climb above the root.
        bad_paths,
        /// 404 for a dot-file, or a link that leads to one.
        hidden,
        /// 404 for a name that does not exist or is no regular file.
        not_found,
        /// 404 for a link that leads out of the root.
        refused_escapes,
        /// 403 for a file that the server may not read.
        forbidden,
        /// 503 because the root was missing.
        root_missing,
        /// Times the root was found to be another directory than before, or back again.
        root_replaced,
        /// 503 because descriptors or memory ran out (EMFILE, ENFILE, ENOMEM).
        descriptors_exhausted,
        /// 500 for any other failure of the file system.
        open_errors,
        /// `Range` fields ignored for asking for too many ranges.
        ranges_refused,
    }
}
