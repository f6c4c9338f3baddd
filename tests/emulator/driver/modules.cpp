// The driver's functions for kernels. Finds kernels by their PTX, and runs the C++ version of the
// same sources.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "driver.h"

static const u32 THREADS = 256;

// Returns this library, which also contains the kernels.
static void *this_library() {
    Dl_info info;
    if (!dladdr((void *)&this_library, &info)) die("dladdr: the library is not found");
    void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!library) die("dlopen: %s", dlerror());
    return library;
}

// Returns the size of a kernel's only argument, which is between parentheses, or 0 if the kernel
// has another number of arguments.
static size_t argument_size(const std::string &name, const std::string &text) {
    std::string parameter = " .b8 " + name + "_param_0[";
    size_t start = text.find(parameter), first = text.find(".param .align ");
    if (start == std::string::npos || first == std::string::npos ||
        text.find(".param", first + 1) != std::string::npos)
        return 0;
    return strtoull(text.c_str() + start + parameter.size(), nullptr, 10);
}

// Reads the entries of PTX.
static Result read_ptx(const std::string &text, std::map<std::string, size_t> &entries) {
    size_t version = text.find(".version "), target = text.find(".target ");
    if (version == std::string::npos || target == std::string::npos) return CUDA_ERROR_INVALID_PTX;
    // The newest PTX version that this version of the driver supports.
    if (strtod(text.c_str() + version + 9, nullptr) > 8.4)
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    if (text.compare(version, 13, ".version 8.0\n") != 0) return CUDA_ERROR_INVALID_PTX;
    if (text.compare(target, 14, ".target sm_70\n") != 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const std::string ENTRY = ".entry ";
    for (size_t at = text.find(ENTRY); at != std::string::npos; at = text.find(ENTRY, at + 1)) {
        size_t open = text.find('(', at), close = text.find(')', at);
        if (open == std::string::npos || close == std::string::npos) return CUDA_ERROR_INVALID_PTX;
        std::string name = text.substr(at + ENTRY.size(), open - at - ENTRY.size());
        size_t size = argument_size(name, text.substr(open, close - open));
        if (size == 0) return CUDA_ERROR_INVALID_PTX;
        entries[name] = size;
    }
    return CUDA_SUCCESS;
}

extern "C" {

Result cuModuleLoadData(Module **handle, const void *image) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!handle || !image) return CUDA_ERROR_INVALID_VALUE;
        auto module = std::make_shared<Module>(Module{current, {}});
        Result result = read_ptx((const char *)image, module->entries);
        if (result == CUDA_SUCCESS) *handle = driver.modules.add(module);
        return result;
    });
}

Result cuModuleUnload(Module *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto module = driver.modules.find(handle);
        if (!module) return CUDA_ERROR_INVALID_HANDLE;
        driver.wait_for(module->context);
        driver.modules.remove(handle);
        driver.functions.remove_if(
            [&](const Function &function) { return function.module == handle; });
        return CUDA_SUCCESS;
    });
}

Result cuModuleGetFunction(Function **handle, Module *module_handle, const char *name) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto module = driver.modules.find(module_handle);
        if (!module) return CUDA_ERROR_INVALID_HANDLE;
        if (!handle || !name) return CUDA_ERROR_INVALID_VALUE;
        auto entry = module->entries.find(name);
        if (entry == module->entries.end()) return CUDA_ERROR_NOT_FOUND;
        static void *library = this_library();
        auto *kernel = (Kernel *)dlsym(library, name);
        if (!kernel) die("cuModuleGetFunction: `%s` is in the PTX and not in the sources", name);
        Function function{module_handle, module->context, name, entry->second, kernel};
        *handle = driver.functions.add(std::make_shared<Function>(function));
        return CUDA_SUCCESS;
    });
}

Result cuFuncGetAttribute(int *value, int attribute, Function *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!driver.functions.find(handle)) return CUDA_ERROR_INVALID_HANDLE;
        if (!value || attribute < 0 || attribute > 15) return CUDA_ERROR_INVALID_VALUE;
        *value = 0;
        if (attribute == 0) *value = THREADS;  // threads of a block, at most
        if (attribute == 4) *value = 64;       // registers
        if (attribute == 5) *value = 80;       // version of the PTX
        if (attribute == 6) *value = 70;       // and of what was made of it
        return CUDA_SUCCESS;
    });
}

Result cuLaunchKernel(Function *handle, u32 grid, u32 grid_y, u32 grid_z, u32 block, u32 block_y,
                      u32 block_z, u32 shared_bytes, Stream *stream_handle, void **arguments,
                      void **extra) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto function = driver.functions.find(handle);
        auto stream = driver.stream(stream_handle);
        if (!function || !stream || function->context != stream->context ||
            stream->context != current)
            return CUDA_ERROR_INVALID_HANDLE;
        if (grid == 0 || grid_y != 1 || grid_z != 1 || block != THREADS || block_y != 1 ||
            block_z != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (shared_bytes != 0 || !arguments || !arguments[0] || extra)
            return CUDA_ERROR_INVALID_VALUE;
        if (grid >= 1u << 23) die("cuLaunchKernel: %u blocks are more than can be emulated", grid);
        // Words of 8 bytes, because the argument is aligned to them.
        std::vector<u64> argument((function->num_bytes + 7) / 8);
        memcpy(argument.data(), arguments[0], function->num_bytes);
        driver.queue.add(stream, Work{[&driver, function, grid, argument = std::move(argument)] {
                                          function->kernel(argument.data(), grid,
                                                           chance.below(grid * THREADS));
                                          driver.memory.check_margins(function->name.c_str());
                                      },
                                      {}});
        return CUDA_SUCCESS;
    });
}
}
