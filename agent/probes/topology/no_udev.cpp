// In portable programs only. Debian's static hwloc asks udev, which has no static library, for the names of disks.
// Nobody here wants them, and without udev hwloc does without.
extern "C" {
void* udev_new() {
    return nullptr;
}
void* udev_unref(void*) {
    return nullptr;
}
void* udev_device_new_from_subsystem_sysname(void*, const char*, const char*) {
    return nullptr;
}
void* udev_device_unref(void*) {
    return nullptr;
}
const char* udev_device_get_property_value(void*, const char*) {
    return nullptr;
}
}
