/* The script as it stands in script.lua, with a NUL behind it. */
	.section .rodata.script, "a"
	.global program_script
	.type program_script, %object
program_script:
	.incbin "script.lua"
	.global program_script_end
program_script_end:
	.byte 0
	.size program_script, . - program_script
	.section .note.GNU-stack, "", %progbits
