/* A stub with the unwinder's symbols of libgcc_s.so.1, for the linker only (scripts/zig.sh). */

#define NAME(name) \
    void name(void) {}

NAME(_Unwind_Backtrace)
NAME(_Unwind_DeleteException)
NAME(_Unwind_FindEnclosingFunction)
NAME(_Unwind_ForcedUnwind)
NAME(_Unwind_GetCFA)
NAME(_Unwind_GetDataRelBase)
NAME(_Unwind_GetGR)
NAME(_Unwind_GetIP)
NAME(_Unwind_GetIPInfo)
NAME(_Unwind_GetLanguageSpecificData)
NAME(_Unwind_GetRegionStart)
NAME(_Unwind_GetTextRelBase)
NAME(_Unwind_RaiseException)
NAME(_Unwind_Resume)
NAME(_Unwind_Resume_or_Rethrow)
NAME(_Unwind_SetGR)
NAME(_Unwind_SetIP)
