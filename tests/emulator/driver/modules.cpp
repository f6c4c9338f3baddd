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

// Reads the entries of PTX. `newest` is the newest version of PTX that the driver supports.
static Result read_ptx(const std::string &text, double newest,
                       std::map<std::string, size_t> &entries) {
    size_t version = text.find(".version "), target = text.find(".target ");
    if (version == std::string::npos || target == std::string::npos) return CUDA_ERROR_INVALID_PTX;
    if (strtod(text.c_str() + version + 9, nullptr) > newest)
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

// The parts of an ELF file that are read here.
struct ElfHeader {
    u8 magic[4], kind[4], abi_version, unused[7];
    uint16_t type, machine;
    u32 version;
    u64 entry, segments, sections;
    u32 flags;
    uint16_t size, segment_size, num_segments, section_size, num_sections, names;
};
struct ElfSection {
    u32 name, type;
    u64 flags, address, start, size;
    u32 link, info;
    u64 alignment, entry_size;
};

// Returns the size of a kernel's argument from the attributes of the kernel in its code, or 0.
static size_t argument_size(const u8 *attributes, u64 size) {
    const u8 HAS_NUMBER = 3, HAS_BYTES = 4, SIZE_OF_ARGUMENTS = 0x19;
    for (u64 at = 0; at + 4 <= size;) {
        uint16_t number;
        memcpy(&number, attributes + at + 2, 2);
        if (attributes[at] == HAS_NUMBER && attributes[at + 1] == SIZE_OF_ARGUMENTS) return number;
        at += 4u + (attributes[at] == HAS_BYTES ? number : 0);
    }
    return 0;
}

// Reads the entries of code for a generation of GPUs. A GPU of the generation that is not older can
// run it.
static Result read_code(const u8 *image, int capability, std::map<std::string, size_t> &entries) {
    ElfHeader header;
    memcpy(&header, image, sizeof header);
    // Since sm_100, the number is in the second byte.
    int made_for = header.abi_version < 8 ? header.flags & 0xff : header.flags >> 8 & 0xff;
    if (made_for > capability || made_for / 10 != capability / 10)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    auto section = [&](u32 number) {
        ElfSection section;
        memcpy(&section, image + header.sections + number * header.section_size, sizeof section);
        return section;
    };
    const char *names = (const char *)image + section(header.names).start;
    const std::string ATTRIBUTES = ".nv.info.";
    for (u32 number = 0; number < header.num_sections; number++) {
        ElfSection found = section(number);
        std::string name = names + found.name;
        if (name.compare(0, ATTRIBUTES.size(), ATTRIBUTES) != 0) continue;
        size_t size = argument_size(image + found.start, found.size);
        if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
        entries[name.substr(ATTRIBUTES.size())] = size;
    }
    return CUDA_SUCCESS;
}

// Writes a text to the buffer for errors of the compiler, if the caller has given one.
static void write_log(const char *text, u32 num_options, const int *options, void **values) {
    const int BUFFER = 5, SIZE = 6;
    char *buffer = nullptr;
    size_t size = 0;
    for (u32 number = 0; number < num_options; number++) {
        if (options[number] == BUFFER) buffer = (char *)values[number];
        if (options[number] == SIZE) size = (size_t)values[number];
    }
    if (buffer && size > 0) snprintf(buffer, size, "%s", text);
}

static Result load(const char *function, Module **handle, const void *image, u32 num_options,
                   const int *options, void **values) {
    return call(function, Needs::CONTEXT, [&](Driver &driver) {
        if (!handle || !image) return CUDA_ERROR_INVALID_VALUE;
        auto module = std::make_shared<Module>(Module{current, {}});
        bool is_code = memcmp(image, "\177ELF", 4) == 0;
        Result result = is_code
                            ? read_code((const u8 *)image, driver.capability, module->entries)
                            : read_ptx((const char *)image, driver.newest_ptx, module->entries);
        if (result == CUDA_SUCCESS) *handle = driver.modules.add(module);
        if (result != CUDA_SUCCESS && !is_code)
            write_log("ptxas fatal   : emulated", num_options, options, values);
        return result;
    });
}

extern "C" {

Result cuModuleLoadData(Module **handle, const void *image) {
    return load(__func__, handle, image, 0, nullptr, nullptr);
}

Result cuModuleLoadDataEx(Module **handle, const void *image, u32 num_options, const int *options,
                          void **values) {
    return load(__func__, handle, image, num_options, options, values);
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
