// lane
