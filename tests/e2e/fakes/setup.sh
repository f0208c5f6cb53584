export FROM_SETUP=1
