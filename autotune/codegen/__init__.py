"""Loop IR to LLVM IR to object code, and object code to addresses in this process."""
