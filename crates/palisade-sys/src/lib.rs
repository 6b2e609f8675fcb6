//! Kernel interfaces: netlink, namespaces, inotify; knows no Palisade word.
