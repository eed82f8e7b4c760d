//! The process itself: the number of its files, and the memory that its allocator keeps.

/// How many file descriptors the process may have (`RLIMIT_NOFILE`); `None` where there is no bound.
pub(crate) fn max_files() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure, to a live one.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    usize::try_from(limit.rlim_cur).ok()
}

/// Has the allocator keep large tables in mappings of their own, which go back to the system as soon
/// as they are freed, and cut off free memory at the end of a heap. Left alone it raises both
/// thresholds to what it has seen, and keeps tens of megabytes after a busy hour. To be called once,
/// before there are threads.
pub fn keep_memory_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets parameters of the allocator; both are documented in mallopt(3).
    unsafe {
        const THRESHOLD: libc::c_int = 128 * 1024;
        libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, THRESHOLD);
    }
}

/// Gives memory that is not in use back to the system. The allocator keeps what a burst needed; the
/// peak of one busy hour need not be held for the rest of the month. To be called by the thread whose
/// memory it is, and also before its first burst, so that it starts as it will be left.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    {
        gather_kept_blocks();
        // SAFETY: malloc_trim has no precondition; it takes the allocator's own locks.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Of each small size the allocator keeps a few free blocks for the thread and never gives them up.
/// They are those freed last, from all over the heap, and each holds on to its page. Here they change
/// places with others that lie side by side.
#[cfg(target_env = "gnu")]
fn gather_kept_blocks() {
    // glibc's tcache: 64 sizes, 16 octets apart from 24 on, of each at most seven blocks.
    const SMALLEST: usize = 24;
    const STEP: usize = 16;
    const SIZES: usize = 64;
    const KEPT: usize = 7;
    let take = || -> Vec<Vec<u8>> {
        let size_of = |i: usize| SMALLEST + STEP * (i / KEPT);
        // Hidden from the optimiser, which would leave out what is never used.
        (0..SIZES * KEPT).map(|i| std::hint::black_box(Vec::with_capacity(size_of(i)))).collect()
    };
    let scattered = take();
    let together = take();
    drop(together);
    drop(scattered);
}
