// Prints what a Vulkan driver says of compute shaders: a JSON line for each entry point of each SPIR-V file.
//   stats [-r0|-r1] [-a] [-i DIR] [-c DIR] FILE.spv...
// -r1 (default): robust buffer access on, as wgpu opens devices; -r0: off. -i: writes the driver's internal texts into
// DIR, if there are some. -c: writes the pipeline cache after each pipeline into DIR (with the machine code in it).
// -a: all devices (default: the first that is not software, else the first).
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define FN(h, get, name) PFN_##name name = (PFN_##name)get(h, #name)
#define CHECK(what, call) do { VkResult r_ = (call); if (r_ < 0) { fprintf(stderr, "%s: VkResult %d\n", what, r_); exit(1); } } while (0)
enum { SETS = 8, BINDINGS = 32 };

typedef struct { char entries[16][128]; int n; VkDescriptorType type[SETS][BINDINGS]; char used[SETS][BINDINGS]; int sets, push; const char *bad; } Shape;

static void text(const char *s) {
    putchar('"');
    for (; *s; s++) { if (*s == '"' || *s == '\\') putchar('\\'); if ((unsigned char)*s >= 32) putchar(*s); }
    putchar('"');
}

static Shape parse(const uint32_t *w, size_t n) {
    static Shape s; memset(&s, 0, sizeof s);
    if (n < 5 || w[0] != 0x07230203) { s.bad = "no SPIR-V"; return s; }
    uint32_t bound = w[3];
    int32_t *set = malloc(4 * bound), *binding = malloc(4 * bound); uint32_t *pointee = calloc(4, bound); char *bufferblock = calloc(1, bound);
    memset(set, -1, 4 * bound); memset(binding, -1, 4 * bound);
    for (size_t i = 5; i < n;) {
        uint32_t op = w[i] & 0xffff, len = w[i] >> 16;
        if (!len || i + len > n) { s.bad = "bad SPIR-V"; break; }
        const uint32_t *o = w + i;
        if (op == 15 && o[1] == 5 && s.n < 16) snprintf(s.entries[s.n++], 128, "%s", (const char *)(o + 3)); // OpEntryPoint GLCompute
        if (op == 71 && o[2] == 33) binding[o[1]] = o[3];
        if (op == 71 && o[2] == 34) set[o[1]] = o[3];
        if (op == 71 && o[2] == 3) bufferblock[o[1]] = 1;
        if (op == 32) pointee[o[1]] = o[3]; // OpTypePointer
        if (op == 59) {                     // OpVariable
            uint32_t id = o[2], class = o[3];
            if (class == 9) s.push = 1;
            if (binding[id] >= 0) {
                int a = set[id] < 0 ? 0 : set[id], b = binding[id];
                if (a >= SETS || b >= BINDINGS || (class != 2 && class != 12)) s.bad = "a binding that is no buffer, or too large a number";
                else {
                    s.used[a][b] = 1; if (a + 1 > s.sets) s.sets = a + 1;
                    s.type[a][b] = class == 12 || bufferblock[pointee[o[1]]] ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER : VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
                }
            }
        }
        i += len;
    }
    free(set); free(binding); free(pointee); free(bufferblock);
    return s;
}

static const char *base(const char *p) { const char *s = strrchr(p, '/'); return s ? s + 1 : p; }
static void save(const char *dir, const char *file, const char *entry, const char *more, const void *data, size_t n) {
    char path[4096]; snprintf(path, sizeof path, "%s/%s.%s%s", dir, base(file), entry, more);
    for (char *c = path + strlen(dir) + 1; *c; c++) if (*c == '/' || *c == ' ') *c = '_';
    FILE *f = fopen(path, "wb"); if (!f) { perror(path); return; } fwrite(data, 1, n, f); fclose(f);
}

int main(int argc, char **argv) {
    int robust = 1, all = 0, at = 1; const char *texts = NULL, *caches = NULL;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (!strcmp(argv[at], "-r0")) robust = 0; else if (!strcmp(argv[at], "-r1")) robust = 1; else if (!strcmp(argv[at], "-a")) all = 1;
        else if (!strcmp(argv[at], "-i") && at + 1 < argc) texts = argv[++at]; else if (!strcmp(argv[at], "-c") && at + 1 < argc) caches = argv[++at];
        else { fprintf(stderr, "unknown option %s\n", argv[at]); return 2; }
    }
    void *lib = dlopen("libvulkan.so.1", RTLD_NOW);
    if (!lib) { printf("{\"error\": \"no libvulkan.so.1\"}\n"); return 0; }
    PFN_vkGetInstanceProcAddr get = (PFN_vkGetInstanceProcAddr)dlsym(lib, "vkGetInstanceProcAddr");
    FN(NULL, get, vkCreateInstance);
    VkApplicationInfo app = {VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo ici = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    VkInstance inst; CHECK("vkCreateInstance", vkCreateInstance(&ici, NULL, &inst));
    FN(inst, get, vkEnumeratePhysicalDevices); FN(inst, get, vkGetPhysicalDeviceProperties); FN(inst, get, vkEnumerateDeviceExtensionProperties);
    FN(inst, get, vkGetPhysicalDeviceFeatures2); FN(inst, get, vkCreateDevice); FN(inst, get, vkGetDeviceProcAddr);
    VkPhysicalDevice pds[16]; uint32_t npd = 16; CHECK("vkEnumeratePhysicalDevices", vkEnumeratePhysicalDevices(inst, &npd, pds));
    if (!npd) { printf("{\"error\": \"no device\"}\n"); return 0; }
    uint32_t from = 0;
    if (!all) for (uint32_t d = 0; d < npd; d++) {
        VkPhysicalDeviceProperties p; vkGetPhysicalDeviceProperties(pds[d], &p);
        if (p.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU) { from = d; break; }
    }
    for (uint32_t d = from; d < (all ? npd : from + 1); d++) {
        VkPhysicalDevice pd = pds[d]; VkPhysicalDeviceProperties p; vkGetPhysicalDeviceProperties(pd, &p);
        static VkExtensionProperties exts[1024]; uint32_t ne = 1024; vkEnumerateDeviceExtensionProperties(pd, NULL, &ne, exts);
        int has = 0, r2 = 0;
        for (uint32_t i = 0; i < ne; i++) { has |= !strcmp(exts[i].extensionName, "VK_KHR_pipeline_executable_properties"); r2 |= !strcmp(exts[i].extensionName, "VK_EXT_robustness2"); }
        printf("{\"device\": "); text(p.deviceName); printf(", \"api\": \"%u.%u.%u\", \"driver\": \"%u.%u\", \"executable_properties\": %s, \"robustness2\": %s, \"robust\": %d}\n",
            VK_API_VERSION_MAJOR(p.apiVersion), VK_API_VERSION_MINOR(p.apiVersion), VK_API_VERSION_PATCH(p.apiVersion), p.driverVersion >> 22, (p.driverVersion >> 14) & 255, has ? "true" : "false", r2 ? "true" : "false", robust);
        if (!has) { printf("{\"error\": \"the driver lacks VK_KHR_pipeline_executable_properties\"}\n"); continue; }
        // What there is; of it only what kernels may use is asked for.
        VkPhysicalDeviceRobustness2FeaturesEXT rob = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT};
        VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR pep = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, .pNext = r2 ? &rob : NULL};
        VkPhysicalDeviceVulkan13Features h13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .pNext = &pep};
        VkPhysicalDeviceVulkan12Features h12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &h13};
        VkPhysicalDeviceFeatures2 have = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &h12};
        vkGetPhysicalDeviceFeatures2(pd, &have);
        VkPhysicalDeviceFeatures2 want = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &h12};
        want.features.shaderInt64 = have.features.shaderInt64; want.features.shaderInt16 = have.features.shaderInt16; want.features.shaderFloat64 = have.features.shaderFloat64;
        want.features.robustBufferAccess = robust && have.features.robustBufferAccess;
        if (!robust) rob.robustBufferAccess2 = rob.robustImageAccess2 = 0;
        rob.nullDescriptor = 0;
        VkPhysicalDeviceVulkan12Features w12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &h13, .timelineSemaphore = h12.timelineSemaphore, .shaderInt8 = h12.shaderInt8,
            .shaderFloat16 = h12.shaderFloat16, .shaderSubgroupExtendedTypes = h12.shaderSubgroupExtendedTypes};
        VkPhysicalDeviceVulkan13Features w13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .pNext = &pep, .subgroupSizeControl = h13.subgroupSizeControl,
            .shaderIntegerDotProduct = h13.shaderIntegerDotProduct, .robustImageAccess = robust && h13.robustImageAccess, .shaderZeroInitializeWorkgroupMemory = h13.shaderZeroInitializeWorkgroupMemory};
        h12 = w12; h13 = w13;
        const char *names[] = {"VK_KHR_pipeline_executable_properties", "VK_EXT_robustness2"};
        float one = 1;
        VkDeviceQueueCreateInfo q = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &one};
        VkDeviceCreateInfo dci = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &want, .queueCreateInfoCount = 1, .pQueueCreateInfos = &q, .enabledExtensionCount = 1 + r2, .ppEnabledExtensionNames = names};
        VkDevice dev; CHECK("vkCreateDevice", vkCreateDevice(pd, &dci, NULL, &dev));
        FN(dev, vkGetDeviceProcAddr, vkCreateShaderModule); FN(dev, vkGetDeviceProcAddr, vkCreateDescriptorSetLayout); FN(dev, vkGetDeviceProcAddr, vkCreatePipelineLayout);
        FN(dev, vkGetDeviceProcAddr, vkCreateComputePipelines); FN(dev, vkGetDeviceProcAddr, vkGetPipelineExecutablePropertiesKHR); FN(dev, vkGetDeviceProcAddr, vkGetPipelineExecutableStatisticsKHR);
        FN(dev, vkGetDeviceProcAddr, vkGetPipelineExecutableInternalRepresentationsKHR); FN(dev, vkGetDeviceProcAddr, vkDestroyPipeline);
        FN(dev, vkGetDeviceProcAddr, vkCreatePipelineCache); FN(dev, vkGetDeviceProcAddr, vkGetPipelineCacheData); FN(dev, vkGetDeviceProcAddr, vkDestroyPipelineCache);
        for (int f = at; f < argc; f++) {
            FILE *in = fopen(argv[f], "rb"); if (!in) { perror(argv[f]); continue; }
            fseek(in, 0, SEEK_END); size_t bytes = ftell(in); rewind(in);
            uint32_t *code = malloc(bytes + 4); bytes = fread(code, 1, bytes, in); fclose(in);
            Shape s = parse(code, bytes / 4);
            if (s.bad) { printf("{\"file\": "); text(base(argv[f])); printf(", \"error\": "); text(s.bad); printf("}\n"); continue; }
            VkShaderModuleCreateInfo mi = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
            VkShaderModule module; CHECK("vkCreateShaderModule", vkCreateShaderModule(dev, &mi, NULL, &module));
            VkDescriptorSetLayout sets[SETS];
            for (int a = 0; a < s.sets; a++) {
                VkDescriptorSetLayoutBinding b[BINDINGS]; int n = 0;
                for (int i = 0; i < BINDINGS; i++) if (s.used[a][i]) b[n++] = (VkDescriptorSetLayoutBinding){i, s.type[a][i], 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL};
                VkDescriptorSetLayoutCreateInfo li = {VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = n, .pBindings = b};
                CHECK("vkCreateDescriptorSetLayout", vkCreateDescriptorSetLayout(dev, &li, NULL, &sets[a]));
            }
            VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 128};
            VkPipelineLayoutCreateInfo pli = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .setLayoutCount = s.sets, .pSetLayouts = sets, .pushConstantRangeCount = s.push, .pPushConstantRanges = &push};
            VkPipelineLayout layout; CHECK("vkCreatePipelineLayout", vkCreatePipelineLayout(dev, &pli, NULL, &layout));
            for (int e = 0; e < s.n; e++) {
                VkPipelineCache cache = VK_NULL_HANDLE;
                VkPipelineCacheCreateInfo cci = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
                if (caches) CHECK("vkCreatePipelineCache", vkCreatePipelineCache(dev, &cci, NULL, &cache));
                VkComputePipelineCreateInfo ci = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                    .flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | (texts ? VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR : 0),
                    .stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, .stage = VK_SHADER_STAGE_COMPUTE_BIT, .module = module, .pName = s.entries[e]}, .layout = layout};
                struct timespec t0, t1; clock_gettime(CLOCK_MONOTONIC, &t0);
                VkPipeline pipe; VkResult r = vkCreateComputePipelines(dev, cache, 1, &ci, NULL, &pipe);
                clock_gettime(CLOCK_MONOTONIC, &t1);
                printf("{\"file\": "); text(base(argv[f])); printf(", \"entry\": "); text(s.entries[e]);
                if (r < 0) { printf(", \"error\": \"vkCreateComputePipelines: %d\"}\n", r); continue; }
                printf(", \"compile_ms\": %.1f, \"statistics\": {", 1e3 * (t1.tv_sec - t0.tv_sec) + 1e-6 * (t1.tv_nsec - t0.tv_nsec));
                VkPipelineInfoKHR pi = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipe};
                VkPipelineExecutablePropertiesKHR ex[8] = {0}; uint32_t nx = 8, count = 0;
                for (int i = 0; i < 8; i++) ex[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
                vkGetPipelineExecutablePropertiesKHR(dev, &pi, &nx, ex);
                for (uint32_t x = 0; x < nx; x++) {
                    VkPipelineExecutableInfoKHR ei = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipe, .executableIndex = x};
                    static VkPipelineExecutableStatisticKHR st[128]; uint32_t ns = 128;
                    for (int i = 0; i < 128; i++) st[i] = (VkPipelineExecutableStatisticKHR){VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
                    vkGetPipelineExecutableStatisticsKHR(dev, &ei, &ns, st);
                    char key[600];
                    snprintf(key, sizeof key, "%u %s: subgroup size", x, ex[x].name);
                    printf("%s", count++ ? ", " : ""); text(nx > 1 ? key : "subgroup size"); printf(": %u", ex[x].subgroupSize);
                    for (uint32_t i = 0; i < ns; i++) {
                        if (nx > 1) snprintf(key, sizeof key, "%u %s: %s", x, ex[x].name, st[i].name); else snprintf(key, sizeof key, "%s", st[i].name);
                        printf(", "); text(key); printf(": ");
                        switch (st[i].format) {
                        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: printf("%s", st[i].value.b32 ? "true" : "false"); break;
                        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: printf("%lld", (long long)st[i].value.i64); break;
                        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: printf("%llu", (unsigned long long)st[i].value.u64); break;
                        default: printf("%g", st[i].value.f64);
                        }
                    }
                    if (texts) {
                        static VkPipelineExecutableInternalRepresentationKHR ir[32]; uint32_t ni = 32;
                        for (int i = 0; i < 32; i++) ir[i] = (VkPipelineExecutableInternalRepresentationKHR){VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR};
                        vkGetPipelineExecutableInternalRepresentationsKHR(dev, &ei, &ni, ir);
                        for (uint32_t i = 0; i < ni; i++) ir[i].pData = malloc(ir[i].dataSize + 1);
                        vkGetPipelineExecutableInternalRepresentationsKHR(dev, &ei, &ni, ir);
                        for (uint32_t i = 0; i < ni; i++) { snprintf(key, sizeof key, ".%u.%s.%s", x, ir[i].name, ir[i].isText ? "txt" : "bin"); save(texts, argv[f], s.entries[e], key, ir[i].pData, ir[i].dataSize); free(ir[i].pData); }
                        printf(", \"internal texts\": %u", ni);
                    }
                }
                printf("}}\n"); fflush(stdout);
                if (caches) {
                    size_t n = 0; vkGetPipelineCacheData(dev, cache, &n, NULL); void *data = malloc(n); vkGetPipelineCacheData(dev, cache, &n, data);
                    save(caches, argv[f], s.entries[e], ".cache", data, n); free(data); vkDestroyPipelineCache(dev, cache, NULL);
                }
                vkDestroyPipeline(dev, pipe, NULL);
            }
            free(code);
        }
    }
    return 0;
}
