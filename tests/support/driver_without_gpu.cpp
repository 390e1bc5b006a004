// A libcuda.so.1 without a GPU that takes any kernel and runs none: cuDNN makes its plans with it, and says
// what scratch they take, on a machine without a driver.

namespace {
int thing;  // what handles point at
constexpr int kSuccess = 0, kNoDevice = 100;
}  // namespace

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorName(int, const char** name) {
  *name = "a driver without a GPU";
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }

#define STRATA_GIVES(name)  \
  int name(void** handle) { \
    *handle = &thing;       \
    return kSuccess;        \
  }
STRATA_GIVES(cuLibraryLoadData)
STRATA_GIVES(cuLibraryGetKernel)
STRATA_GIVES(cuModuleLoadData)
STRATA_GIVES(cuModuleLoadDataEx)
STRATA_GIVES(cuModuleGetFunction)

#define STRATA_COUNTS(name) \
  int name(int* count) {    \
    *count = 1;             \
    return kSuccess;        \
  }
STRATA_COUNTS(cuKernelGetAttribute)
STRATA_COUNTS(cuFuncGetAttribute)
STRATA_COUNTS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
STRATA_COUNTS(cuOccupancyMaxPotentialClusterSize)

#define STRATA_TAKES(name) \
  int name() { return kSuccess; }
STRATA_TAKES(cuKernelSetAttribute)
STRATA_TAKES(cuFuncSetAttribute)
STRATA_TAKES(cuLibraryUnload)
STRATA_TAKES(cuModuleUnload)

// Looked for, and not to be called without a GPU.
#define STRATA_REFUSES(name) \
  int name() { return kNoDevice; }
STRATA_REFUSES(cuCtxGetCurrent)
STRATA_REFUSES(cuCtxGetDevice)
STRATA_REFUSES(cuCtxGetLimit)
STRATA_REFUSES(cuCtxPopCurrent)
STRATA_REFUSES(cuCtxPushCurrent)
STRATA_REFUSES(cuDeviceGet)
STRATA_REFUSES(cuDeviceGetAttribute)
STRATA_REFUSES(cuDeviceGetCount)
STRATA_REFUSES(cuDevicePrimaryCtxRelease)
STRATA_REFUSES(cuDevicePrimaryCtxReset)
STRATA_REFUSES(cuDevicePrimaryCtxRetain)
STRATA_REFUSES(cuGetExportTable)
STRATA_REFUSES(cuLaunchCooperativeKernel)
STRATA_REFUSES(cuLaunchKernel)
STRATA_REFUSES(cuLaunchKernelEx)
STRATA_REFUSES(cuLibraryLoadFromFile)
STRATA_REFUSES(cuLinkAddData)
STRATA_REFUSES(cuLinkAddData_v2)
STRATA_REFUSES(cuLinkAddFile_v2)
STRATA_REFUSES(cuLinkComplete)
STRATA_REFUSES(cuLinkCreate)
STRATA_REFUSES(cuLinkCreate_v2)
STRATA_REFUSES(cuLinkDestroy)
STRATA_REFUSES(cuMemcpyDtoH_v2)
STRATA_REFUSES(cuModuleGetGlobal_v2)
STRATA_REFUSES(cuModuleLoadFatBinary)
STRATA_REFUSES(cuStreamGetCtx)
STRATA_REFUSES(cuStreamSynchronize)
STRATA_REFUSES(cuTensorMapEncodeTiled)

}  // extern "C"
