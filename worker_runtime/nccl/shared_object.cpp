#include "worker_runtime/nccl/shared_object.h"

#include <dlfcn.h>
#include <link.h>

#include "rendezvous/base/text.h"

namespace muster::runtime {

Result<SharedObject> SharedObject::open(const std::vector<std::string>& names) {
    std::vector<std::string> reasons;
    for (const auto& name : names) {
        SharedObject object;
        object.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (object.handle_ == nullptr) {
            reasons.emplace_back(::dlerror());
            continue;
        }
        link_map* map = nullptr;
        object.path_ = ::dlinfo(object.handle_, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : name;
        return object;
    }
    return Error{Errc::unsupported, join(reasons, "; ")};
}

bool SharedObject::is_loaded(const std::string& name) {
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle != nullptr) ::dlclose(handle);
    return handle != nullptr;
}

void* SharedObject::find(const char* symbol) const {
    return ::dlsym(handle_, symbol);
}

}  // namespace muster::runtime
