// A libcuda.so.1 without a GPU that accepts every kernel and runs none. With it cuDNN builds its plans and
// reports their workspace sizes on a machine without a driver.

namespace {
int dummy;  // target of all handles
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

#define STRATA_STUB_HANDLE(name) \
  int name(void** handle) {      \
    *handle = &dummy;            \
    return kSuccess;             \
  }
STRATA_STUB_HANDLE(cuLibraryLoadData)
STRATA_STUB_HANDLE(cuLibraryGetKernel)
STRATA_STUB_HANDLE(cuModuleLoadData)
STRATA_STUB_HANDLE(cuModuleLoadDataEx)
STRATA_STUB_HANDLE(cuModuleGetFunction)

#define STRATA_STUB_COUNT(name) \
  int name(int* count) {        \
    *count = 1;                 \
    return kSuccess;            \
  }
STRATA_STUB_COUNT(cuKernelGetAttribute)
STRATA_STUB_COUNT(cuFuncGetAttribute)
STRATA_STUB_COUNT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
STRATA_STUB_COUNT(cuOccupancyMaxPotentialClusterSize)

#define STRATA_STUB_SUCCESS(name) \
  int name() { return kSuccess; }
STRATA_STUB_SUCCESS(cuKernelSetAttribute)
STRATA_STUB_SUCCESS(cuFuncSetAttribute)
STRATA_STUB_SUCCESS(cuLibraryUnload)
STRATA_STUB_SUCCESS(cuModuleUnload)

// These must exist, but are not called without a GPU.
#define STRATA_STUB_NO_DEVICE(name) \
  int name() { return kNoDevice; }
STRATA_STUB_NO_DEVICE(cuCtxGetCurrent)
STRATA_STUB_NO_DEVICE(cuCtxGetDevice)
STRATA_STUB_NO_DEVICE(cuCtxGetLimit)
STRATA_STUB_NO_DEVICE(cuCtxPopCurrent)
STRATA_STUB_NO_DEVICE(cuCtxPushCurrent)
STRATA_STUB_NO_DEVICE(cuDeviceGet)
STRATA_STUB_NO_DEVICE(cuDeviceGetAttribute)
STRATA_STUB_NO_DEVICE(cuDeviceGetCount)
STRATA_STUB_NO_DEVICE(cuDevicePrimaryCtxRelease)
STRATA_STUB_NO_DEVICE(cuDevicePrimaryCtxReset)
STRATA_STUB_NO_DEVICE(cuDevicePrimaryCtxRetain)
STRATA_STUB_NO_DEVICE(cuGetExportTable)
STRATA_STUB_NO_DEVICE(cuLaunchCooperativeKernel)
STRATA_STUB_NO_DEVICE(cuLaunchKernel)
STRATA_STUB_NO_DEVICE(cuLaunchKernelEx)
STRATA_STUB_NO_DEVICE(cuLibraryLoadFromFile)
STRATA_STUB_NO_DEVICE(cuLinkAddData)
STRATA_STUB_NO_DEVICE(cuLinkAddData_v2)
STRATA_STUB_NO_DEVICE(cuLinkAddFile_v2)
STRATA_STUB_NO_DEVICE(cuLinkComplete)
STRATA_STUB_NO_DEVICE(cuLinkCreate)
STRATA_STUB_NO_DEVICE(cuLinkCreate_v2)
STRATA_STUB_NO_DEVICE(cuLinkDestroy)
STRATA_STUB_NO_DEVICE(cuMemcpyDtoH_v2)
STRATA_STUB_NO_DEVICE(cuModuleGetGlobal_v2)
STRATA_STUB_NO_DEVICE(cuModuleLoadFatBinary)
STRATA_STUB_NO_DEVICE(cuStreamGetCtx)
STRATA_STUB_NO_DEVICE(cuStreamSynchronize)
STRATA_STUB_NO_DEVICE(cuTensorMapEncodeTiled)

}  // extern "C"
