//! The counters of a site.

base::counts! {
    /// Counters since the site was made. Each limit and each refusal has one.
    pub struct Counts {
        /// Requests answered from the cache, without a system call.
        hits,
        /// Names looked up that were not cached.
        misses,
        /// Requests for an answer from memory alone that memory could not give.
        cold,
        /// Cached files that were checked again and found unchanged.
        revalidations,
        /// Cached files that were found changed.
        changed,
        /// Cached files served without a check because the process had no descriptor left for it.
        revalidations_skipped,
        /// Files dropped from the cache for the limit on entries.
        evicted_for_entries,
        /// Files dropped from the cache for the limit on open files.
        evicted_for_open_files,
        /// Files dropped from the cache for the limit on bytes.
        evicted_for_bytes,
        /// Files dropped from the cache because no request used them lately.
        dropped_idle,
        /// Remembered refusals dropped for their limit.
        evicted_absent,
        /// Small files that changed during every attempt to read them. They are sent from the open file
        /// instead.
        unstable_reads,
        /// Precompressed siblings older than their original, and therefore not offered.
        outdated_siblings,
        /// Redirects by a rule.
        redirects,
        /// Responses without a file, by a rule.
        fixed_responses,
        /// 403 for a client whose network may not ask for the path.
        denied_networks,
        /// 401 for a request without the right name and password.
        unauthorized,
        /// 429 for a client with too many wrong passwords.
        refused_tries,
        /// 503 for a password that could not be checked at once, because checks take a fifth of a loop's time at most.
        postponed_checks,
        /// 500 because a file with passwords could not be read.
        password_file_errors,
        /// Compressed forms of files that loops have taken over.
        compressed,
        /// Requests for a compressed form that got the file itself, because the form was not ready.
        not_compressed_yet,
        /// Requests for absent files that the fallback file answered.
        fallbacks,
        /// Errors answered with a page of the site.
        error_pages,
        /// Folders read to be listed.
        listings,
        /// 421 for a host whose certificate the connection does not have.
        misdirected,
        /// 400 for a path that is malformed or climbs above the root.
        bad_paths,
        /// 404 for a dot-file, or a link that leads to one.
        hidden,
        /// 404 for a name that does not exist or is not a regular file.
        not_found,
        /// 404 for a link that leads out of the root.
        refused_escapes,
        /// 403 for a file that the server may not read.
        forbidden,
        /// 503 because the root was missing.
        root_missing,
        /// Times that a check found another directory at the root's path, or a directory where none had been.
        root_replaced,
        /// 503 because descriptors or memory ran out (EMFILE, ENFILE, ENOMEM).
        descriptors_exhausted,
        /// 500 for any other failure of the file system.
        open_errors,
        /// `Range` fields ignored because they asked for too many ranges.
        ranges_refused,
    }
}
