#include "worker_runtime/nccl/libraries/shared_object.h"

#include <dlfcn.h>
#include <link.h>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

Result<SharedObject> SharedObject::open(const std::string& name) {
    SharedObject object;
    object.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object.handle_ == nullptr) return Error{Errc::unsupported, ::dlerror()};
    link_map* map = nullptr;
    object.path_ = ::dlinfo(object.handle_, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : name;
    return object;
}

bool SharedObject::is_loaded(const std::string& name) {
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle != nullptr) ::dlclose(handle);
    return handle != nullptr;
}

void* SharedObject::find(const char* symbol) const {
    return ::dlsym(handle_, symbol);
}

Error no_library(std::string_view what, const LibraryChoice& choice, std::string_view said) {
    const auto remedy =
        choice.named.empty()
            ? cat("install it on this host, or name its file in ", choice.variable)
            : cat(choice.variable, " names it: set it to an existing file, or unset it to search in the usual places");
    return {Errc::unsupported, cat("no ", what, " (", said, "); ", remedy)};
}

}  // namespace muster::runtime
