//! Names of calls that nobody answers, for those who ask which those are.

/// Numbers and names of calls that have no row.
#[rustfmt::skip]
pub const NAMES: &[(u16, &str)] = &[
    (103, "syslog"),
    (134, "uselib"), (136, "ustat"), (139, "sysfs"),
    (153, "vhangup"), (155, "pivot_root"), (156, "_sysctl"), (163, "acct"), (167, "swapon"),
    (168, "swapoff"), (169, "reboot"), (170, "sethostname"), (171, "setdomainname"), (172, "iopl"),
    (173, "ioperm"), (174, "create_module"), (175, "init_module"), (176, "delete_module"),
    (177, "get_kernel_syms"), (178, "query_module"), (179, "quotactl"), (180, "nfsservctl"),
    (181, "getpmsg"), (182, "putpmsg"), (183, "afs_syscall"), (184, "tuxcall"), (185, "security"),
    (205, "set_thread_area"), (207, "io_destroy"), (208, "io_getevents"),
    (209, "io_submit"), (210, "io_cancel"), (211, "get_thread_area"), (212, "lookup_dcookie"),
    (214, "epoll_ctl_old"), (215, "epoll_wait_old"), (216, "remap_file_pages"),
    (219, "restart_syscall"), (236, "vserver"),
    (246, "kexec_load"), (248, "add_key"), (249, "request_key"), (250, "keyctl"), (251, "ioprio_set"),
    (252, "ioprio_get"),
    (301, "fanotify_mark"), (303, "name_to_handle_at"), (304, "open_by_handle_at"),
    (312, "kcmp"), (313, "finit_module"),
    (320, "kexec_file_load"),
    (329, "pkey_mprotect"), (331, "pkey_free"), (333, "io_pgetevents"),
    (428, "open_tree"), (429, "move_mount"), (430, "fsopen"), (431, "fsconfig"), (432, "fsmount"),
    (433, "fspick"), (438, "pidfd_getfd"), (440, "process_madvise"),
    (442, "mount_setattr"), (443, "quotactl_fd"), (444, "landlock_create_ruleset"),
    (445, "landlock_add_rule"), (446, "landlock_restrict_self"), (447, "memfd_secret"),
    (448, "process_mrelease"), (449, "futex_waitv"), (450, "set_mempolicy_home_node"),
];
